FROM condaforge/mambaforge
RUN mamba create -y -n gnn python=3.9 && echo "source activate gnn" > ~/.bashrc
RUN mamba install -y -n gnn pytorch=1.13.1 pytorch-cuda=11.6 -c pytorch -c nvidia && mamba clean -a -y
RUN mamba install -n gnn -c pyg -c conda-forge pyg rdkit openbabel scikit-learn -y
RUN conda run -n gnn pip install wandb
