curl -LsSf https://astral.sh/uv/install.sh | sh
uv venv --python 3.11
uv pip install torch==2.3.1 torch_geometric
uv pip install -r requirements.txt
uv run python train.py
