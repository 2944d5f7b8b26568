conda create --name cpu python=3.9
conda install pytorch cpuonly -c pytorch
pip install torch_geometric
pip install matplotlib networkx
