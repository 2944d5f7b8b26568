"""The catalogue: every stack at every CUDA version as a folder of pages, in several languages."""
