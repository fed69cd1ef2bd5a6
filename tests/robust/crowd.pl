#!/usr/bin/perl
# Fills the listen queue of a stopped cell with connections, prints their number, and keeps them open until standard
# input closes.
#
#   crowd.pl SOCKET
use strict;
use warnings;
use Fcntl;
use Socket;

my ($path) = @ARGV;
my $address = pack_sockaddr_un($path);
my @held;
for (1 .. 15000) {
    socket(my $socket, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!\n";
    fcntl($socket, F_SETFL, O_NONBLOCK) or die "fcntl: $!\n";
    if (!connect($socket, $address)) {
        die "connect: $!\n" unless $!{EAGAIN};
        $| = 1;
        print scalar(@held), "\n";
        1 while sysread(STDIN, my $ignored, 1);
        exit 0;
    }
    push @held, $socket;
}
die "the listen queue did not fill\n";
