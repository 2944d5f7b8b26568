#!/usr/bin/env bash
module purge
module load cuda/11.8 python/3.11
python -m venv $HOME/envs/gnn
source $HOME/envs/gnn/bin/activate
python -m pip install -U pip wheel
python -m pip install torch==2.0.1 --index-url https://download.pytorch.org/whl/cu118
python -m pip install torch_geometric torch_scatter -f https://data.pyg.org/whl/torch-2.0.1+cu118.html
python -m pip install -e .
export WANDB_MODE=offline
deactivate
