"""Looking at a turnlane from outside: `turnlane status` and `turnlane doctor`; reads only."""
