"""What a publisher of jobs needs: the contract, the names, the topology as data, a confirmed publisher."""
