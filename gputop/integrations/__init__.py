"""Callbacks for training frameworks, over ``gputop.watch``.

Nothing else imports these modules.
"""
