a

b
