# The protocol of a peer written in Ruby, as `bench_peer.py` has it for Python: `ruby peer.rb VERB ...`.
# A peer gives a module with the functions enqueue, bulk, ping and serve; serve runs one worker process.

require "json"

module Bench
  STORE = ENV.fetch("BENCH_URL", "")
  MARKS = ENV.fetch("BENCH_MARKS", ".")
  CALL = 1000
  WORKERS = 2

  @lock = Mutex.new
  @starts = 0

  module_function

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

  # Note a start. A thread shows it, as Ruby has no memory to share with others.
  def mark
    @lock.synchronize do
      @last = now
      show_from(@last) if @starts.zero?
      @starts += 1
    end
  end

  def show_from(first)
    file = File.open(File.join(MARKS, "#{Process.pid}.starts"), "wb")
    Thread.new do
      loop do
        sleep 0.01
        count, last = @lock.synchronize { [@starts, @last] }
        file.pwrite([count, first, last].pack("Q<EE"), 0)
      end
    end
  end

  # Note how long ago a job was sent.
  def ping(sent)
    late = now - sent
    @lock.synchronize do
      @latencies ||= File.open(File.join(MARKS, "#{Process.pid}.latencies"), "ab")
      @latencies.syswrite([late].pack("E"))
    end
  end

  def main(peer)
    verb, *rest = ARGV
    return work(peer) if verb == "work"

    puts JSON.generate(drive(peer, verb, rest.map(&:to_f)))
  end

  def work(peer)
    return peer.serve if ENV["BENCH_CHILD"]

    WORKERS.times { Process.spawn({ "BENCH_CHILD" => "1" }, RbConfig.ruby, $PROGRAM_NAME, "work") }
    Process.waitall
  end

  def drive(peer, verb, numbers)
    count, second, third = numbers
    case verb
    when "prepare" then {}
    when "single"
      text = "x" * second
      timed(count.to_i, 1) { peer.enqueue(text) }
    when "bulk"
      texts = Array.new(CALL, "x" * second)
      timed(count.to_i / CALL, CALL) { peer.bulk(texts) }
    when "ping"
      count.to_i.times do
        peer.ping(now, third)
        sleep second
      end
      { jobs: count }
    else { absent: verb }
    end
  end

  # The rate of a loop of calls, and how long a call took; the first call, which connects, apart.
  def timed(calls, each)
    yield
    began, spent, waits = now, cpu, []
    (calls - 1).times do
      before = now
      yield
      waits << now - before
    end
    jobs, seconds, used = (calls - 1) * each, now - began, cpu - spent
    waits.sort!
    {
      jobs: jobs,
      began: began,
      rate: jobs / seconds,
      client_us: used / jobs * 1e6,
      p50_ms: waits[waits.length / 2] * 1e3,
      p99_ms: waits[(waits.length * 0.99).to_i] * 1e3
    }
  end
end
