FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-devel
RUN apt-get update && apt-get install -y cuda-toolkit-11-7 libcudnn8-dev libopenmpi-dev
ENV OMP_NUM_THREADS=4 WANDB_API_KEY=secret
