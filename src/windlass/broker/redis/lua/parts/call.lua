-- Every command goes through `call`. Tests put another one in its place that fails at the nth command.
local call = redis.call
