#!/usr/bin/env bash
#SBATCH --time=00:30:00
set -e
module purge
module load cuda/11.8 gcc/11
source ~/miniconda3/etc/profile.d/conda.sh

ENV_NAME=${1:-molgnn}
conda create -n "$ENV_NAME" python=3.11 -y
conda activate $ENV_NAME

conda install pytorch==2.0.1 torchvision==0.15.2 pytorch-cuda=11.8 -c pytorch -c nvidia -y
conda install -c conda-forge rdkit openbabel -y
pip install torch_geometric==2.3.1
pip install torch_scatter torch_sparse torch_cluster -f https://data.pyg.org/whl/torch-2.0.1+cu118.html
pip install -U "ray[tune]" optuna wandb
pip install ogb tensorboard==2.14
export PYTHONPATH="${PYTHONPATH}:$(pwd)/src"
echo "Done: activate with conda activate $ENV_NAME"
