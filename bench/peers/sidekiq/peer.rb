# Sidekiq over Redis: two processes of ten threads. A killed one loses what it had.

require "sidekiq"
require_relative "../../protocol/peer"

Sidekiq.logger.level = Logger::WARN
Redis.silence_deprecations = true if Redis.respond_to?(:silence_deprecations=)
Sidekiq.configure_client { |config| config.redis = { url: Bench::STORE } }
Sidekiq.configure_server { |config| config.redis = { url: Bench::STORE } }

class Noop
  include Sidekiq::Worker

  def perform(_text)
    Bench.mark
  end
end

class Pinged
  include Sidekiq::Worker

  def perform(sent)
    Bench.ping(sent)
  end
end

module SidekiqPeer
  module_function

  def enqueue(text) = Noop.perform_async(text)

  def bulk(texts) = Sidekiq::Client.push_bulk("class" => Noop, "args" => texts.map { |text| [text] })

  # Its priorities are of queues.
  def ping(sent, _priority) = Pinged.perform_async(sent)

  # What its command does.
  def serve
    require "sidekiq/cli"
    command = Sidekiq::CLI.instance
    command.parse(["-r", __FILE__, "-c", "10", "-t", "1"])
    command.run
  end
end

Bench.main(SidekiqPeer) if __FILE__ == $PROGRAM_NAME
