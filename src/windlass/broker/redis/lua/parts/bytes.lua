-- The order of strings by their bytes, which is the order of the server's ranges. Lua's own `<` follows the locale of the
-- server's process, where control characters may not count and letters have another order.

local function is_less(a, b) return a < b end

local by_bytes = 'B' < 'a' and '_' < 'a' and 'a\1b' < 'a\2' and '\2' < 'A' and '\127' < '\200'
if not by_bytes then
  is_less = function(a, b)
    local n, at = math.min(#a, #b), 1
    while at + 5 <= n do
      local x, y = struct.unpack('>I6', a, at), struct.unpack('>I6', b, at)
      if x ~= y then return x < y end
      at = at + 6
    end
    for i = at, n do
      local x, y = string.byte(a, i), string.byte(b, i)
      if x ~= y then return x < y end
    end
    return #a < #b
  end
end
