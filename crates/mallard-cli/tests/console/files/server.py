held = [bytes(100 + i % 900) for i in range(20_000)]
print(len(held))
