"""What a run comes to: the account of each GPU and of a whole job."""
