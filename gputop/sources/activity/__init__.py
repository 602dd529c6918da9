"""Sources of SM activity, one file each."""
