"""From kernel IR to running machine code: CUDA text, NVRTC, and the driver.

Knows nothing of fusions or schedules; may import `core`, `sym` and `kernel`. Start reading at `printer.py`
for the text, `nvrtc.py` for its compilation and `driver.py` for launches. Importing any of it needs no GPU.
"""
