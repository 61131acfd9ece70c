"""A turnlane seen from outside, for `turnlane status` and `turnlane doctor`; changes nothing."""
