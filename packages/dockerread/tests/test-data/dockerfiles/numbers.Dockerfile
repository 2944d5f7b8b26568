FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime
RUN pip install -q -U "transformers>=4.40,<5" datasets && python -m pip install --no-deps timm==0.9.16
RUN pip install numpy==1.26.4; pip install scipy
RUN pip uninstall -y torchaudio
RUN apt-get install --yes htop=3.0.5-7 nano && locale-gen en_US.UTF-8
RUN mkdir -p data/raw && cd data && echo done
ENV TOKENIZERS_PARALLELISM="false"
