"""From a store to batches that are ready when the step asks for them.

windows -> arrays -> ring <- makers (a thread, or worker processes) <- loader. Only the loader imports torch: what a
worker process imports is NumPy and `shared`.
"""
