#!/bin/bash
CUDA=$(python -c "import torch; print(torch.version.cuda)")
pip install torch_geometric
pip install torch_scatter -f https://data.pyg.org/whl/torch-2.3.0+$CUDA.html
if [ "$1" == "--dev" ]; then
  pip install pytest
fi
