#!/bin/sh
set -eu
CUDA=cu117
TORCH=2.0.1
pip install "torch==${TORCH}"
pip install pyg_lib torch_scatter torch_sparse -f "https://data.pyg.org/whl/torch-${TORCH}+${CUDA}.html"
pip install torch_geometric ogb
if command -v nvidia-smi > /dev/null; then
    nvidia-smi
fi
