"""Callbacks for training frameworks, each a thin layer over ``gputop.watch``. Nothing else imports these modules."""
