"""`python -m rdma_ray`."""

import sys

from rdma_ray import main

sys.exit(main())
