complete -c echod -l config -d 'Read this configuration file; it must exist' -r -F
complete -c echod -l socket -d 'Listen on this socket' -r -F
complete -c echod -l host-budget -d 'Host memory for all tables, such as "64 GiB" [default: half of the memory]' -r
complete -c echod -l uid-budget -d 'Host memory for the tables of one user [default: the host budget]' -r
complete -c echod -l max-clients -d 'Clients that one user can have at a time [default: 256]' -r
complete -c echod -l max-pending -d 'Connections of one user at a time that have not said hello yet [default: 64]' -r
complete -c echod -l max-calls -d 'Calls a second of one user, once it has made as many at once [default: 5000]' -r
complete -c echod -l max-tables -d 'Tables that one user can have at a time [default: 256]' -r
complete -c echod -l max-leases -d 'Batches granted ahead to one user\'s readers: the sum of their prefetch depths [default: 8192]' -r
complete -c echod -l hello-timeout -d 'Time that a connection has to say hello, such as "500ms" [default: 2s]' -r
complete -c echod -l drain-timeout -d 'Time that clients have to finish when the daemon stops [default: 10s]' -r
complete -c echod -l prefault-threads -d 'Threads that make the pages of a new table resident [default: one a core, at most 4]' -r
complete -c echod -l log -d 'What to log: a level, or levels by part, such as "warn,echod=debug" [default: info]' -r
complete -c echod -l log-format -d 'Where to log: auto, text (on standard error) or journal [default: auto]' -r
complete -c echod -l print-config -d 'Print the configuration and where each value came from, and exit'
complete -c echod -s h -l help -d 'Print help (see more with \'--help\')'
complete -c echod -s V -l version -d 'Print version'
