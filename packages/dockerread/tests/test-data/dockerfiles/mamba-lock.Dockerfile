FROM condaforge/mambaforge:23.3.1-1
WORKDIR /project
COPY environment.yml .
RUN mamba env update -n base -f environment.yml && mamba clean -afy
RUN mamba install -y -c pyg -c pytorch -c nvidia pytorch=2.0.1 pytorch-cuda=11.8 pyg=2.3.1
RUN conda config --set channel_priority strict
COPY . .
RUN pip install --no-deps .
ENTRYPOINT ["python", "-m", "mypkg.train"]
