"""Texts that DCGM's programs print, and stand-ins that print them."""
