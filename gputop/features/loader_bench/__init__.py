"""Number of loader workers that a job needs.

Each setting is measured in a child, once the queue that it had time to fill is empty.
"""
