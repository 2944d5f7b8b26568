#!/bin/bash
set -e
TORCH=2.0.1
CUDA=cu118
pip install torch==${TORCH}+${CUDA} --extra-index-url https://download.pytorch.org/whl/${CUDA}
pip install torch-scatter torch-sparse torch-cluster -f https://data.pyg.org/whl/torch-${TORCH}+${CUDA}.html
pip install torch-geometric==2.3.1
pip install ogb tqdm "scikit-learn>=1.0"
