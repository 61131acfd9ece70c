"""The life of the serving process: starting, handing over, serving, ending."""
