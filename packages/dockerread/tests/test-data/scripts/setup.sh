git clone https://github.com/example/layers.git
cd layers
python setup.py develop
cd ..
export PYTHONPATH=$PYTHONPATH:$(pwd)
echo "done"
