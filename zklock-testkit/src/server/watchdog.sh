# Runs as long as the test process does, then ends its servers and removes their folder.
#
# Standard input is a pipe that only the test process holds: it ends when that process does, by
# whatever means. A server is known by its working directory, which lies in the folder, so that no
# process number has to be handed over (nor can go stale) between the birth and the death of a server;
# and by its input, so that somebody who looks around in the folder with a shell is left alone.
trap '' HUP INT
folder=$1
read -r _

while :; do
    found=
    for process in /proc/[0-9]*; do
        case $(readlink "$process/cwd" 2>/dev/null) in
        "$folder"/*)
            if [ "$(readlink "$process/fd/0" 2>/dev/null)" = /dev/null ]; then
                kill -9 "${process#/proc/}" 2>/dev/null && found=yes
            fi
            ;;
        esac
    done
    [ "$found" ] || break
done
rm -rf "$folder"
