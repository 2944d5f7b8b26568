FROM registry.example.org/team/pytorch:2.0.1-cuda11.8-devel
ENV WANDB_API_KEY=0123456789abcdef HTTPS_PROXY=http://proxy.example.org:3128 SEED=1
ENV LD_PRELOAD=/usr/lib/libjemalloc.so.2
ENV LD_LIBRARY_PATH=/opt/vendor/lib:/usr/local/cuda/lib64
COPY requirements.txt /etc/pip.conf
RUN pip install -c requirements.txt einops
RUN apt-get install -y python3-gdal git
RUN ./entrypoint.sh && pipenv install --system
ENTRYPOINT ["/usr/local/bin/docker-entrypoint.sh"]
