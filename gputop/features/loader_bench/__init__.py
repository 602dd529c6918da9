"""Number of loader workers that a job needs.

``loader_command`` starts the job's Python (``job_python``), which runs ``job_side`` and imports the job's module, once.
``measure_setting`` asks it for each setting and samples its processes; ``plan`` chooses. Each setting is measured in a
fork, once the queue that it had time to fill is empty. From Python: ``gputop.dataloader_bench(dataset)``.
"""
