module rdma-ray/tools/gke-networking

go 1.26

require github.com/GoogleCloudPlatform/gke-networking-api v0.2.11
