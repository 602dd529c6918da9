"""The screens that open over the main one."""
