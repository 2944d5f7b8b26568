uv venv --python 3.11
source .venv/bin/activate
uv pip install torch==2.7.1 torch_geometric
uv pip install -e ".[dev]"
uv add lightning
