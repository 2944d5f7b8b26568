#!/bin/bash
module load cuda/11.8 python/3.10
python -m venv ~/envs/gnn
source ~/envs/gnn/bin/activate
pip install --upgrade pip
pip install torch==2.0.1 torch_geometric
pip install git+https://github.com/example/tool.git
deactivate
