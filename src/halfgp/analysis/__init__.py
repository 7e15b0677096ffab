"""What low precision does to kernel matrices and to solving with them."""
