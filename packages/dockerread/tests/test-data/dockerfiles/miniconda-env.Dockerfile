FROM continuumio/miniconda3:latest
COPY environment.yml /tmp/environment.yml
RUN conda update -n base -c defaults conda -y && conda env create -f /tmp/environment.yml && conda clean -afy
RUN echo "conda activate mine" >> ~/.bashrc
ENV PATH=/opt/conda/envs/mine/bin:$PATH
SHELL ["conda", "run", "-n", "mine", "/bin/bash", "-c"]
COPY . /code
WORKDIR /code
