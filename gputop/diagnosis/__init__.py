"""What the measurements mean: signals, attribution, rules, badges and one verdict per GPU. Pure: no I/O, no clock."""
