# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_echoctl_global_optspecs
    string join \n socket= timeout= json h/help V/version
end

function __fish_echoctl_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_echoctl_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_echoctl_using_subcommand
    set -l cmd (__fish_echoctl_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c echoctl -n "__fish_echoctl_needs_command" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_needs_command" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_needs_command" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c echoctl -n "__fish_echoctl_needs_command" -s V -l version -d 'Print version'
complete -c echoctl -n "__fish_echoctl_needs_command" -f -a "status" -d 'How the daemon is; works with a daemon of any version'
complete -c echoctl -n "__fish_echoctl_needs_command" -f -a "table" -d 'Tables'
complete -c echoctl -n "__fish_echoctl_needs_command" -f -a "group" -d 'Groups of readers, each of which reads all batches of a queue table'
complete -c echoctl -n "__fish_echoctl_needs_command" -f -a "client" -d 'Connected processes'
complete -c echoctl -n "__fish_echoctl_needs_command" -f -a "lease" -d 'Batches and values that readers hold'
complete -c echoctl -n "__fish_echoctl_needs_command" -f -a "watch" -d 'What changes: samples and batches a second, and what waits longest'
complete -c echoctl -n "__fish_echoctl_needs_command" -f -a "doctor" -d 'What this machine can do for echo, and why not; works without a daemon'
complete -c echoctl -n "__fish_echoctl_needs_command" -f -a "why" -d 'What is being waited for at a table, who holds it up, and since when'
complete -c echoctl -n "__fish_echoctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand status" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand status" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand status" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand status" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -f -a "list" -d 'All tables, with their samples'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -f -a "show" -d 'One table: its arrays, its memory, who is attached'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -f -a "create" -d 'Make a table, unless one of that name with an equal spec is there'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -f -a "drop" -d 'End a table for everybody; samples that were not read are lost'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -f -a "reset" -d 'Remove all items of a replay table, and count from zero'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -f -a "access" -d 'Show or replace the rules that say who may do what with a table, beside its owner'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and not __fish_seen_subcommand_from list show create drop reset access help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from list" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from list" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from list" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from show" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from show" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from show" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l kind -d 'What becomes of its samples: each batch goes to one reader, or the newest value to all, or they are chosen until they are removed' -r -f -a "queue\t''
latest\t''
replay\t''"
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l batch-size -d 'Samples in a batch; not of a latest table, whose values are single [default of a replay table: 256]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l capacity -d 'Batches that the table holds, or values [default of a latest table: 4]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l max-capacity -d 'Batches, or values, that it may grow to [default: the capacity]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l array -d 'An array of a sample, such as obs:float32:84x84 or reward:float32; once for each' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l access -d 'Who may do what with it, such as group:ml=read,write; roles are write, read, pin, observe and administer; once for each [default: everyone=observe]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l pin -d 'Whether its pages must be locked' -r -f -a "required\t''
best-effort\t''
off\t''"
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l huge-pages -d 'Whether its large arrays must be on huge pages' -r -f -a "auto\t''
required\t''
off\t''"
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l max-size -d 'Items in a full table' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l sampler -d 'Which items are sampled: fifo, lifo, uniform, prioritized:EXPONENT, min-heap or max-heap [default: uniform]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l remover -d 'Which item makes room in a full table, likewise [default: fifo]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l max-times-sampled -d 'Remove an item when it was sampled so often [default: 0, which is never]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l rate-limiter -d 'Who waits for whom: min-size:ITEMS, ratio:SAMPLES_PER_INSERT:MIN_SIZE:BUFFER, ratio:SAMPLES_PER_INSERT:MIN_SIZE:MIN_DIFF:MAX_DIFF, queue:ITEMS or stack:ITEMS [default: min-size:1]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l max-staleness -d 'Remove items that lag behind the trainer\'s version by more [default: none]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l staleness-decay -d 'What a weight is multiplied by for each version that an item lags behind another' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l samples-per-version -d 'Let workers in only with what can still be used in time: samples that the trainer uses in one version' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l max-running -d 'And samples that may be in the making at a time' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from drop" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from drop" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from drop" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from drop" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from reset" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from reset" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from reset" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from reset" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from access" -l set -d 'Replace all rules by this one, and by each further one, such as group:ml=read,write or everyone=observe' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from access" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from access" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from access" -l clear -d 'Remove all rules, so that only the owner can do anything'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from access" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from access" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from help" -f -a "list" -d 'All tables, with their samples'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from help" -f -a "show" -d 'One table: its arrays, its memory, who is attached'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make a table, unless one of that name with an equal spec is there'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from help" -f -a "drop" -d 'End a table for everybody; samples that were not read are lost'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from help" -f -a "reset" -d 'Remove all items of a replay table, and count from zero'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from help" -f -a "access" -d 'Show or replace the rules that say who may do what with a table, beside its owner'
complete -c echoctl -n "__fish_echoctl_using_subcommand table; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and not __fish_seen_subcommand_from list add remove rewind help" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and not __fish_seen_subcommand_from list add remove rewind help" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and not __fish_seen_subcommand_from list add remove rewind help" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and not __fish_seen_subcommand_from list add remove rewind help" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and not __fish_seen_subcommand_from list add remove rewind help" -f -a "list" -d 'All groups of a table: how far each has come'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and not __fish_seen_subcommand_from list add remove rewind help" -f -a "add" -d 'Have another group read the table'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and not __fish_seen_subcommand_from list add remove rewind help" -f -a "remove" -d 'Let a group go that has no readers; nobody waits for it any more'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and not __fish_seen_subcommand_from list add remove rewind help" -f -a "rewind" -d 'Have a group read once more what is still there'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and not __fish_seen_subcommand_from list add remove rewind help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from list" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from list" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from list" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from add" -l from -d 'From where on it reads: what is still there, or what is not begun yet' -r -f -a "oldest\t''
newest\t''"
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from add" -l max-lag -d 'Bytes of batches by which it may lag before it skips the oldest, such as 64MiB [default: any number, and workers wait for it]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from add" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from add" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from add" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from remove" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from remove" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from remove" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from rewind" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from rewind" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from rewind" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from rewind" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "list" -d 'All groups of a table: how far each has come'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "add" -d 'Have another group read the table'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Let a group go that has no readers; nobody waits for it any more'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "rewind" -d 'Have a group read once more what is still there'
complete -c echoctl -n "__fish_echoctl_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and not __fish_seen_subcommand_from list help" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and not __fish_seen_subcommand_from list help" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and not __fish_seen_subcommand_from list help" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and not __fish_seen_subcommand_from list help" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and not __fish_seen_subcommand_from list help" -f -a "list" -d 'All clients, with what they hold'
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and not __fish_seen_subcommand_from list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and __fish_seen_subcommand_from list" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and __fish_seen_subcommand_from list" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and __fish_seen_subcommand_from list" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and __fish_seen_subcommand_from help" -f -a "list" -d 'All clients, with what they hold'
complete -c echoctl -n "__fish_echoctl_using_subcommand client; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and not __fish_seen_subcommand_from list help" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and not __fish_seen_subcommand_from list help" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and not __fish_seen_subcommand_from list help" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and not __fish_seen_subcommand_from list help" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and not __fish_seen_subcommand_from list help" -f -a "list" -d 'All batches and values that readers hold: which reader, which batch, whether it can be read, and for how long it was so'
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and not __fish_seen_subcommand_from list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and __fish_seen_subcommand_from list" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and __fish_seen_subcommand_from list" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and __fish_seen_subcommand_from list" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and __fish_seen_subcommand_from help" -f -a "list" -d 'All batches and values that readers hold: which reader, which batch, whether it can be read, and for how long it was so'
complete -c echoctl -n "__fish_echoctl_using_subcommand lease; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand watch" -l interval -d 'How long from one look to the next' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand watch" -l count -d 'End after so many looks; the exit code is that of the last [default: never]' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand watch" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand watch" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand watch" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c echoctl -n "__fish_echoctl_using_subcommand doctor" -l config -d 'The configuration file that echod would be given [default: the one that it would find]' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand doctor" -l cudart -d 'Use this CUDA runtime and look for no other' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand doctor" -l vendor-root -d 'A directory of NVIDIA\'s packages, such as .../site-packages/nvidia; once for each' -r -f -a "(__fish_complete_directories)"
complete -c echoctl -n "__fish_echoctl_using_subcommand doctor" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand doctor" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand doctor" -l pin -d 'Ask for page-locking for CUDA, whatever the configuration asks for'
complete -c echoctl -n "__fish_echoctl_using_subcommand doctor" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c echoctl -n "__fish_echoctl_using_subcommand why" -l socket -d 'Ask the daemon that listens on this socket' -r -F
complete -c echoctl -n "__fish_echoctl_using_subcommand why" -l timeout -d 'How long the daemon may take to answer' -r
complete -c echoctl -n "__fish_echoctl_using_subcommand why" -l json -d 'Print an object for programs'
complete -c echoctl -n "__fish_echoctl_using_subcommand why" -s h -l help -d 'Print help'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and not __fish_seen_subcommand_from status table group client lease watch doctor why help" -f -a "status" -d 'How the daemon is; works with a daemon of any version'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and not __fish_seen_subcommand_from status table group client lease watch doctor why help" -f -a "table" -d 'Tables'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and not __fish_seen_subcommand_from status table group client lease watch doctor why help" -f -a "group" -d 'Groups of readers, each of which reads all batches of a queue table'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and not __fish_seen_subcommand_from status table group client lease watch doctor why help" -f -a "client" -d 'Connected processes'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and not __fish_seen_subcommand_from status table group client lease watch doctor why help" -f -a "lease" -d 'Batches and values that readers hold'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and not __fish_seen_subcommand_from status table group client lease watch doctor why help" -f -a "watch" -d 'What changes: samples and batches a second, and what waits longest'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and not __fish_seen_subcommand_from status table group client lease watch doctor why help" -f -a "doctor" -d 'What this machine can do for echo, and why not; works without a daemon'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and not __fish_seen_subcommand_from status table group client lease watch doctor why help" -f -a "why" -d 'What is being waited for at a table, who holds it up, and since when'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and not __fish_seen_subcommand_from status table group client lease watch doctor why help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from table" -f -a "list" -d 'All tables, with their samples'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from table" -f -a "show" -d 'One table: its arrays, its memory, who is attached'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from table" -f -a "create" -d 'Make a table, unless one of that name with an equal spec is there'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from table" -f -a "drop" -d 'End a table for everybody; samples that were not read are lost'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from table" -f -a "reset" -d 'Remove all items of a replay table, and count from zero'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from table" -f -a "access" -d 'Show or replace the rules that say who may do what with a table, beside its owner'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "list" -d 'All groups of a table: how far each has come'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "add" -d 'Have another group read the table'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "remove" -d 'Let a group go that has no readers; nobody waits for it any more'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "rewind" -d 'Have a group read once more what is still there'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from client" -f -a "list" -d 'All clients, with what they hold'
complete -c echoctl -n "__fish_echoctl_using_subcommand help; and __fish_seen_subcommand_from lease" -f -a "list" -d 'All batches and values that readers hold: which reader, which batch, whether it can be read, and for how long it was so'
