"""How many loader workers a job needs: each setting measured in a child, after the queue that it had time to fill is
empty.
"""
