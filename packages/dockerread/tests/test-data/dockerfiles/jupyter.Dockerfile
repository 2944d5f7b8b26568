FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime
RUN pip install jupyterlab ipywidgets && jupyter nbextension enable --py widgetsnbextension
WORKDIR /notebooks
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--allow-root", "--no-browser"]
EXPOSE 8888
