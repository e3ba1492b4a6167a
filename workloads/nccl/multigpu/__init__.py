"""Whether ray.util.collective adds up right over several GPUs of each of several workers."""
