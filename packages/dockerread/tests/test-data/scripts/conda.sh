#!/usr/bin/env bash
conda create -n gnn python=3.10 -y
conda activate gnn
conda install pytorch==2.1.0 torchvision pytorch-cuda=12.1 -c pytorch -c nvidia -y
conda install pyg -c pyg -y
conda install -c conda-forge rdkit biopython -y
pip install -r requirements.txt
pip install -e .
