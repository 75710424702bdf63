-- Runs inside the server: fills it with values of every type in a fixed order, changes and deletes
-- some of them, reads all of them in a fixed order, and returns one hash of the answers.
local hash = ''
local function add(...)
  hash = redis.sha1hex(hash .. table.concat({...}, ','))
end
for i = 1, 3000 do
  local k = i % 100
  redis.call('SET', 's:' .. i, string.rep('v' .. i, i % 60))
  redis.call('HSET', 'h:' .. k, 'f' .. i, string.rep('h', i % 300))
  redis.call('RPUSH', 'l:' .. k % 20, 'e' .. i)
  redis.call('ZADD', 'z:' .. k % 10, i * 31 % 977, 'm' .. i)
  redis.call('SADD', 'u:' .. k % 7, i * 7919)
  if i % 3 == 0 then redis.call('DEL', 's:' .. (i / 3)) end
  if i % 5 == 0 then redis.call('APPEND', 's:' .. i, string.rep('x', i % 700)) end
  if i % 7 == 0 then redis.call('LPOP', 'l:' .. k % 20) end
end
for i = 1, 3000 do add(redis.call('GET', 's:' .. i) or '-', redis.call('HGET', 'h:' .. i % 100, 'f' .. i)) end
for i = 0, 19 do add(unpack(redis.call('LRANGE', 'l:' .. i, 0, -1))) end
for i = 0, 9 do add(unpack(redis.call('ZRANGE', 'z:' .. i, 0, -1, 'WITHSCORES'))) end
for i = 0, 6 do add(redis.call('SCARD', 'u:' .. i), redis.call('SISMEMBER', 'u:' .. i, 7919 * 8)) end
redis.call('FLUSHALL')
return hash
