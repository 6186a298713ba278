"""Neutron's ML2 mechanism driver for Twill: it hands objects over to `twill openstack-plugin`, and knows nothing of them."""
